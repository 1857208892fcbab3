"""What is measured, and how: a load generator, the shapes of load, tables, yardsticks.

`python -m bench --help` says what can be measured. Nothing here is part of the product.
"""
