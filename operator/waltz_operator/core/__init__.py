"""Plan a cluster's next steps and derive its status from its desired and observed state. Pure.

`resources` has the models of what users write. `desired` and `observed` have the two states.
`planning` compares them and returns `steps`, among them those that apply the Kubernetes objects of
`objects`. `status` and `pool_status` derive what users see. `preview` simulates the plans. The
package `waltz_operator.shell` observes the clusters and performs the steps.
"""
