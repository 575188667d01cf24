"""User settings: options and ini values, limits of the marker, `within` and `allow`."""
