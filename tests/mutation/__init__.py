"""Mutation tests of the guarantees: each mechanism is changed in careless ways, and the tests of its guarantee must fail.

docs/guarantees.md -> functions -> mutants (operators.py, Cosmic Ray) -> the guarantee's tests alone -> report
"""
