"""Value types and names of settings, timers, metrics in JSON, and a bound for a rate. Pure.

Spark's options use the value types, too.

* `value_types`: types of values, and the conversion of text or a YAML value to such a type
* `setting_names`: dotted names of settings, and their environment variables
* `timer`: counts events and their durations
* `json_metrics`: metrics in the JSON forms of Waltz 0.13.2
* `token_bucket`: bounds a rate
"""
