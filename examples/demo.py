"""Half a minute with pytest-torchgraph: `python examples/demo.py`.

Copies a few of the examples with their stored graphs into `demo/`, makes one edit to a model of 12
layers, runs pytest there, and leaves the picture of the difference and the page of the run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SUITE = ("test_bert.py", "test_fx.py", "test_compiler_pass.py", "test_conv_block.py")
BEFORE = "    return BertModel(config).eval()\n"
AFTER = """\
    model = BertModel(config).eval()
    model.encoder.layer[7].intermediate.intermediate_act_fn = torch.nn.ReLU()
    return model
"""
CHANGED = "test_bert.py::test_graphs"


def main() -> int:
    demo = Path("demo")
    shutil.rmtree(demo, ignore_errors=True)
    for name in SUITE:
        stored = Path("__snapshots__") / Path(name).stem
        if (HERE / stored).is_dir():
            shutil.copytree(HERE / stored, demo / stored)
        demo.mkdir(exist_ok=True)
        shutil.copy(HERE / name, demo / name)
    (demo / "pytest.ini").write_text("[pytest]\n")
    edited = demo / "test_bert.py"
    source = edited.read_text(encoding="utf-8")
    assert source.count(BEFORE) == 1
    edited.write_text(source.replace(BEFORE, AFTER), encoding="utf-8")
    print("In a copy of examples/test_bert.py, layer 7 of 12 gets another activation:\n")
    print("".join(f"  - {line}\n" for line in BEFORE.splitlines()), end="")
    print("".join(f"  + {line}\n" for line in AFTER.splitlines()), flush=True)
    run = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    shown = [CHANGED, *SUITE[1:], "--torchgraph-artifacts=.", "--torchgraph-report=page.html"]
    failed = subprocess.run([*run, *shown], cwd=demo, check=False).returncode
    pictures, page = sorted(demo.glob("*.svg")), demo / "page.html"
    print("\nThe test failed, as it should: the graph is another one. To look at:")
    for path in (*pictures, page):
        print(f"  {path}")
    return 0 if failed == 1 and page.is_file() else 1


if __name__ == "__main__":
    sys.exit(main())
