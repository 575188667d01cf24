"""`docs/reference/rules.md`, made from the rules and their examples.

`PYTHONPATH=tests:. python tests/docs/rules.py` writes it.
"""

from __future__ import annotations

from pathlib import Path

from graph.rule_examples import EXAMPLES

from pytest_torchgraph.graph import RULES

RULES_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"
HEAD = """# Rules of findings

`finding.reasons` has the names of the rules that made it one finding. `to_text(why=True)`,
`diff --why` and the JSON list them, the text with the two nodes of some uses. A rule that *joins*
makes two changes one edit. By a rule that *follows*, a change is a consequence of the edit. An edit
of a single node without consequences has no reasons.

Each example is a line of code before and after, with its modules. A test checks that the difference
has the rule.
"""
KINDS = {"joins": "Changes that are one edit", "follows": "Changes that follow from an edit"}


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for kind, title in KINDS.items():
        lines += [f"## {title}\n"]
        for rule in RULES:
            if rule.kind == kind:
                example = EXAMPLES[rule.name]
                sides = (example.before, example.modules), (example.after, example.changed)
                before, after = (f"{code}  # {made}" if made else code for code, made in sides)
                before += "  # stored" if example.stored else ""
                lines += [f"### {rule.name}\n", f"{rule.meaning}\n"]
                lines += ["```text", f"before  {before}".replace("\n", "\n        ")]
                lines += [f"after   {after}".replace("\n", "\n        "), "```\n"]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    RULES_PAGE.write_text(page(), encoding="utf-8")
