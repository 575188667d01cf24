"""The settings of a user: options and ini values, limits of the marker, `within` and `allow`."""
