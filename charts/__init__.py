"""Generate the chart's README and its dashboard; ``made`` writes both files."""
