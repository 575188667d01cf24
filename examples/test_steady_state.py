"""After a warm-up nothing compiles again: two watches, one after the other.

The first holds the warm-up, which may compile as often as it likes. What the second one sees is the
steady state. `assert_no_recompiles()` fails where compiled code was compiled again, and also where
none ran at all, so that a loop which left the compiler's hands is not taken for a steady one. Each
test has a second one beside it, which shows that the assertion does fail.
"""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel


@pytest.fixture
def net():
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
    return torch.compile(layers, backend="aot_eager")


# -- a second equal call ---------------------------------------------------------------------------


def test_a_second_equal_call_compiles_nothing(graph_capture, net):
    with graph_capture.watch() as warm_up:
        net(torch.ones(4, 8))
    with graph_capture.watch() as steady:
        net(torch.zeros(4, 8))

    warm_up.assert_graph_count(forward=1)
    steady.assert_no_recompiles()
    steady.assert_graph_count(total=0)
    assert steady.executions == {"0/0": 1}


def test_a_call_that_is_not_equal_does(graph_capture, net):
    with graph_capture.watch():
        net(torch.ones(4, 8))
    with graph_capture.watch() as steady:
        net(torch.ones(4, 8, dtype=torch.float64).float().requires_grad_())

    with pytest.raises(AssertionError, match="requires_grad was False, is True"):
        steady.assert_no_recompiles()


def test_no_call_at_all_is_no_steady_state(graph_capture, net):
    with graph_capture.watch():
        net(torch.ones(4, 8))
    with graph_capture.watch() as steady:
        pass

    with pytest.raises(AssertionError, match="no compiled function or module was called"):
        steady.assert_no_recompiles()


# -- a third shape ---------------------------------------------------------------------------------


def test_a_third_shape_runs_what_the_second_made_dynamic(graph_capture, net):
    with graph_capture.watch() as warm_up:
        net(torch.ones(4, 8))
        net(torch.ones(5, 8))
    with graph_capture.watch() as steady:
        net(torch.ones(6, 8))
        net(torch.ones(70, 8))

    warm_up.assert_recompiles(count=1)
    assert "the size became dynamic in compilation 0/1" in warm_up.recompiles[0].reasons[0]
    steady.assert_no_recompiles()
    assert steady.executions == {"0/1": 2}


def test_without_dynamic_shapes_each_shape_is_compiled(graph_capture):
    net = torch.compile(torch.nn.Linear(8, 2), backend="eager", dynamic=False)

    def run(size):
        return net(torch.ones(size, 8))

    with graph_capture.watch():
        run(4)
        run(5)
    with graph_capture.watch() as steady:
        run(6)

    with pytest.raises(AssertionError, match="size of dim 0 was 5, is 6"):
        steady.assert_no_recompiles()


# -- generate() ------------------------------------------------------------------------------------


@pytest.fixture
def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_head=2, n_embd=16, n_positions=64, vocab_size=64, bos_token_id=0,
        eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    model.forward = torch.compile(model.forward, backend="eager")
    return model


def generate(model, batch=2, seed=0, tokens=6):
    prompt = torch.randint(1, 64, (batch, 5), generator=torch.Generator().manual_seed(seed))
    made = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens,
        min_new_tokens=tokens, do_sample=False,
    )  # fmt: skip
    assert made.shape == (batch, 5 + tokens)


def test_a_second_generation_compiles_nothing(graph_capture, gpt2):
    with graph_capture.watch() as warm_up:
        generate(gpt2)
    with graph_capture.watch() as steady:
        generate(gpt2, seed=1, tokens=9)

    warm_up.assert_no_graph_breaks()
    steady.assert_no_recompiles()
    assert sum(steady.executions.values()) == 9  # one run for each token


def test_a_second_generation_with_another_batch_does(graph_capture, gpt2):
    with graph_capture.watch():
        generate(gpt2)
    with graph_capture.watch() as steady:
        generate(gpt2, batch=3)

    with pytest.raises(AssertionError, match=r"input_ids.*: size of dim 0 was 2, is 3"):
        steady.assert_no_recompiles()


# -- with and without gradients --------------------------------------------------------------------


def train(net):
    net(torch.ones(4, 8)).sum().backward()


def evaluate(net):
    with torch.no_grad():
        net(torch.ones(4, 8))


def test_warmed_up_with_and_without_gradients_neither_compiles(graph_capture, net):
    with graph_capture.watch() as warm_up:
        train(net)
        evaluate(net)
    with graph_capture.watch() as steady:
        for _ in range(3):
            train(net)
            evaluate(net)

    warm_up.assert_graph_count(forward=2, backward=1)
    steady.assert_no_recompiles()
    assert steady.executions == {"0/0": 3, "0/0 backward": 3, "0/1": 3}


def test_warmed_up_with_gradients_alone_the_evaluation_compiles(graph_capture, net):
    with graph_capture.watch():
        train(net)
    with graph_capture.watch() as steady:
        evaluate(net)

    with pytest.raises(AssertionError, match=r"grad.mode"):
        steady.assert_no_recompiles()
