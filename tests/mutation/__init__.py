"""Mutation tests: each guarantee's mechanism is changed in careless ways, and the guarantee's tests must fail.

docs/guarantees.md -> functions -> mutants (operators.py, Cosmic Ray) -> the guarantee's tests alone -> report
"""
