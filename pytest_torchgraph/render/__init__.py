from .whole import to_dot
