"""A capture on several hosts: the head (the command `prism capture`) and the agents (`prism agent`, one per host) that
offer it their slots. `channel` is the connection between the two, `head` and `agent` are its ends."""
