"""Run a bank: transfers under locks, and balances in a SQL database that follow from the log.

* `accounts`: the balances, and how a booking changes them (SQL database)
* `orders`: the orders to open an account and to transfer money, with their locks
* `office`: an office, which submits orders on several threads
* `audit`: compares the balances with the log

Each partition of the log is a branch with its own accounts; money stays in its branch. Several
offices may run, in one process or in several. Each office may have its own database, or all may
share one. Offices may be killed and started again. The sum of all balances always stays the same,
and no balance is negative.

    python -m examples.bank --in-process
    python -m examples.bank --zookeeper HOST:PORT --database sqlite:///bank.db --transfers 500
    python -m examples.bank --zookeeper HOST:PORT --database postgresql+psycopg://...
"""
