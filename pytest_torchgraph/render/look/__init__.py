"""Text and colours of boxes: labels, op categories, change marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .changes import ARROW as ARROW
    from .changes import BREAK_SIGN as BREAK_SIGN
    from .changes import SIGNS as SIGNS
    from .changes import ChangeMark as ChangeMark
    from .changes import ChangeMarkKind as ChangeMarkKind
    from .changes import ComparedLine as ComparedLine
    from .changes import change_lines as change_lines
    from .changes import source_line as source_line
    from .colours import BORDER as BORDER
    from .colours import CATEGORY_PAINTS as CATEGORY_PAINTS
    from .colours import CHANGE_PAINTS as CHANGE_PAINTS
    from .colours import HEAT_PAINTS as HEAT_PAINTS
    from .colours import SHARES as SHARES
    from .colours import STEP_LABELS as STEP_LABELS
    from .colours import UNITS as UNITS
    from .colours import Heat as Heat
    from .colours import HeatFigure as HeatFigure
    from .colours import Paint as Paint
    from .colours import op_category as op_category
    from .labels import MAX_LINE as MAX_LINE
    from .labels import MAX_LINES as MAX_LINES
    from .labels import MAX_TOOLTIP_LINE as MAX_TOOLTIP_LINE
    from .labels import TIMES as TIMES
    from .labels import clean as clean
    from .labels import cut as cut
    from .labels import dot_text as dot_text
    from .labels import eager_label as eager_label
    from .labels import folded_label as folded_label
    from .labels import need_graphviz as need_graphviz
    from .labels import node_lines as node_lines
    from .labels import op_label as op_label
    from .labels import tooltip_of as tooltip_of
    from .labels import value_label as value_label
else:
    __getattr__ = front_door(
        __name__,
        {
            "changes": (
                "ARROW BREAK_SIGN ChangeMark ChangeMarkKind ComparedLine SIGNS "
                "change_lines source_line"
            ),
            "colours": (
                "BORDER CATEGORY_PAINTS CHANGE_PAINTS HEAT_PAINTS Heat HeatFigure Paint SHARES "
                "STEP_LABELS UNITS op_category"
            ),
            "labels": (
                "MAX_LINE MAX_LINES MAX_TOOLTIP_LINE TIMES clean cut dot_text eager_label "
                "folded_label need_graphviz node_lines op_label tooltip_of value_label"
            ),
        },
    )
