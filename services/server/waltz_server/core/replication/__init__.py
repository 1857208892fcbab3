"""Store sessions: recovery by vote, quorum appends, catching up, appends in doubt. Pure."""
