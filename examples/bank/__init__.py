"""A bank: accounts, transfers under locks, balances in SQL that are rebuilt from the log.

* `accounts`: the balances and how a booking changes them (SQL database)
* `orders`: opening an account, transferring money: what is decided, and under which locks
* `office`: a branch office that gives orders, on several threads
* `audit`: what must be true of the balances in the end

Each partition of the log is a branch with accounts of its own; money stays in its branch. Offices
can have a database each or share one, run in one process or in several, be killed and started
again: no money is made or lost, no balance gets below zero.

    python -m examples.bank --mock
    python -m examples.bank --zookeeper HOST:PORT --database sqlite:///bank.db --transfers 500
    python -m examples.bank --zookeeper HOST:PORT --database postgresql+psycopg://...
"""
