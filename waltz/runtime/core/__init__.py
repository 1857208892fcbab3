"""Values that settings, Spark's options and metrics share. Pure.

* `value_types`: types of values, and how text or a YAML value becomes one
* `setting_names`: dotted names of settings, and their environment variables
* `timer`: counts and durations of events
* `json_metrics`: metrics in the JSON forms of 0.13.2
"""
