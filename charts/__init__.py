"""Generate the chart's README and its dashboard; ``generate`` writes both files."""
