"""What in the chart is made by programs: its README and its dashboard; ``made`` writes both."""
