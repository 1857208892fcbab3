"""A bank: accounts, transfers under locks, balances in SQL that are rebuilt from the log.

* `accounts`: the balances and how a booking changes them (SQL database)
* `orders`: the orders to open an account and to transfer money, with their locks
* `office`: an office that submits orders on several threads
* `audit`: verifies the balances

Each partition of the log is a branch with its own accounts; money stays in its branch. Offices may
have a database each or share one, run in one process or in several, and be killed and started
again. The sum of all balances stays right, and no balance is negative.

    python -m examples.bank --mock
    python -m examples.bank --zookeeper HOST:PORT --database sqlite:///bank.db --transfers 500
    python -m examples.bank --zookeeper HOST:PORT --database postgresql+psycopg://...
"""
