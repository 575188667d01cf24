"""Text and colours of boxes: labels, op categories, change marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .changes import (
        ARROW,
        BREAK_SIGN,
        SIGNS,
        ChangeMark,
        ChangeMarkKind,
        ComparedLine,
        change_lines,
        source_line,
    )
    from .colours import (
        BORDER,
        CATEGORY_PAINTS,
        CHANGE_PAINTS,
        HEAT_PAINTS,
        SHARES,
        STEP_LABELS,
        UNITS,
        Heat,
        HeatFigure,
        Paint,
        op_category,
    )
    from .labels import (
        MAX_LINE,
        MAX_LINES,
        MAX_TOOLTIP_LINE,
        TIMES,
        clean,
        cut,
        dot_text,
        eager_label,
        folded_label,
        need_graphviz,
        node_lines,
        op_label,
        tooltip_of,
        value_label,
    )
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
