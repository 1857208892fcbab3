"""The demo: a year of flights goes through the log, and Spark says what delays are handed on.

    python -m demo [--flights N] [--out DIR]

The three airports of New York write every departure of 2013 into a cluster on this machine, each
flight under a lock on its aircraft, while a storage node is killed and comes back. Then a Spark job
reads the log, checks it against the source, and answers a question.

* pure: `flights` (the data; reads one file), `timeline` (who may depart when), `fleet` (what an
  airport knows of the log), `checks` (what must be true of what Spark has read)
* network and processes: `airport` (a producer), `traffic` (all of them, and the fault), `delays`
  (the Spark job), `spark_log` (its noise), `plot`, `screen`, `__main__`
"""
