"""Store sessions: recovery by voting, quorum appends, catching up, in-doubt appends. Pure."""
