"""Text and colours of boxes: labels, op categories, change marks."""
