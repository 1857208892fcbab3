"""``waltz access``: grant, revoke and list what each client may do."""
