"""Plan a cluster's next steps and derive its status from its desired and observed state. Pure."""
