"""Networks of torchvision and timm for images and videos, small and in train mode."""

# mypy: disable-error-code="no-any-return, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..case import Case, add, case, floats, library, torchvision


def seen(name: str, size: int = 32, **options: Any) -> None:
    """A model of torchvision on two images."""

    def make() -> Case:
        make_model = getattr(torchvision().models, name)
        return Case(make_model(num_classes=5, **options).train(), (floats(2, 3, size, size),))

    add("torchvision", f"torchvision_{name}", make)


seen("alexnet", 64)
seen("vgg11_bn")
seen("resnet18")
seen("resnext50_32x4d")
seen("squeezenet1_1", 64)
seen("mobilenet_v2")
seen("mobilenet_v3_small")
seen("mnasnet0_5")
seen("shufflenet_v2_x0_5")
seen("googlenet", 64, aux_logits=True, init_weights=False)
seen("efficientnet_b0")
seen("regnet_y_400mf")
seen("swin_t", 64)
seen("swin_v2_t", 64)


@case("torchvision")
def torchvision_densenet() -> Case:
    model = torchvision().models.DenseNet(4, (2, 2), 8, num_classes=5, drop_rate=0.1)
    return Case(model.train(), (floats(2, 3, 32, 32),))


@case("torchvision")
def torchvision_vision_transformer() -> Case:
    make = torchvision().models.VisionTransformer
    model = make(16, 8, 2, 2, 16, 32, dropout=0.1, num_classes=5)
    return Case(model.train(), (floats(2, 3, 16, 16),))


@case("torchvision")
def torchvision_fcn() -> Case:
    model = torchvision().models.segmentation.fcn_resnet50(
        weights=None, weights_backbone=None, num_classes=3, aux_loss=True
    )
    return Case(model.train(), (floats(2, 3, 32, 32),))


@case("torchvision")
def torchvision_lraspp() -> Case:
    make = torchvision().models.segmentation.lraspp_mobilenet_v3_large
    model = make(weights=None, weights_backbone=None, num_classes=3)
    return Case(model.train(), (floats(2, 3, 32, 32),))


@case("torchvision")
def torchvision_video_r2plus1d() -> Case:
    return Case(torchvision().models.video.r2plus1d_18(num_classes=3), (floats(1, 3, 4, 32, 32),))


@case("torchvision")
def torchvision_raft() -> Case:
    model = torchvision().models.optical_flow.raft_small()
    images = floats(1, 3, 128, 128), floats(1, 3, 128, 128)
    return Case(model.train(), images, {"num_flow_updates": 2})


@case("torchvision")
def torchvision_feature_pyramid() -> Case:
    from collections import OrderedDict

    pyramid = torchvision().ops.FeaturePyramidNetwork([4, 8], 6)
    maps = OrderedDict(a=floats(1, 4, 8, 8), b=floats(1, 8, 4, 4))
    return Case(pyramid, (maps,))


@case("torchvision")
def torchvision_anchors_and_losses() -> Case:
    ops = torchvision().ops

    def run(boxes: Tensor, scores: Tensor) -> Tensor:
        target = boxes.detach() + 0.1
        found = ops.generalized_box_iou_loss(boxes, target, reduction="mean")
        found = found + ops.sigmoid_focal_loss(scores, torch.ones_like(scores), reduction="mean")
        return found + ops.complete_box_iou_loss(boxes, target).sum()

    corner = torch.rand(4, 2)
    boxes = torch.cat([corner, corner + torch.rand(4, 2) + 0.1], -1).requires_grad_()
    return Case(run, (boxes, floats(4).requires_grad_()))


@case("torchvision")
def torchvision_drop_block() -> Case:
    ops = torchvision().ops
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        ops.DropBlock2d(0.3, 3),
        ops.StochasticDepth(0.2, "row"),
        ops.SqueezeExcitation(4, 2),
        ops.Permute([0, 2, 3, 1]),
        ops.MLP(4, [8, 2], dropout=0.1),
    )
    return Case(model.train(), (floats(2, 1, 12, 12),))


def timm_model(name: str, size: int = 32, **options: Any) -> None:
    """A model of timm on two images."""

    def make() -> Case:
        model = library("timm").create_model(name, num_classes=5, **options)
        return Case(model.train(), (floats(2, 3, size, size),))

    add("timm", f"timm_{name}", make)


SMALL: dict[str, Any] = {"embed_dim": 16, "depth": 2, "num_heads": 2}

timm_model("vit_tiny_patch16_224", img_size=32, drop_path_rate=0.2, **SMALL)
timm_model("deit_tiny_distilled_patch16_224", img_size=32, **SMALL)
timm_model("beit_base_patch16_224", img_size=32, **SMALL)
timm_model("cait_xxs24_224", img_size=32, **SMALL)
timm_model("xcit_nano_12_p16_224", img_size=32, **SMALL)
timm_model("mixer_s32_224", 64, img_size=64)
timm_model("resmlp_12_224", img_size=32)
timm_model("gmlp_ti16_224", img_size=32)
timm_model("poolformer_s12")
timm_model("pit_ti_224", 64, img_size=64)
timm_model("levit_128s", 64, img_size=64)
timm_model("coat_lite_tiny", 64, img_size=64)
timm_model("ghostnet_050")
timm_model("dla34", 64)
timm_model("resnest14d", 64)
timm_model("skresnet18")
timm_model("nf_resnet26", 64)
timm_model("repvgg_a0")
timm_model("mobileone_s0")
timm_model("fastvit_t8", 64)
timm_model("edgenext_xx_small", 64)
timm_model("mobilevitv2_050", 64)
timm_model("vovnet39a", 64)
timm_model("cspresnet50", 64)
timm_model("inception_next_tiny", depths=(1, 1, 1, 1), dims=(8, 16, 16, 32))
timm_model("convnextv2_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 32))
timm_model("focalnet_tiny_srf")
timm_model("davit_tiny", 64, depths=(1, 1, 1, 1))
timm_model("starnet_s1")
timm_model("mambaout_femto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 32))
timm_model("hiera_tiny_224", 64, img_size=(64, 64), stages=(1, 1, 1, 1), embed_dim=16, num_heads=1)
timm_model("repvit_m0_9", 64)
timm_model("sequencer2d_s", 64, img_size=64, layers=(1, 1, 1, 1))
timm_model("nest_tiny", 64, img_size=64)
