"""Beam pipelines that turn raw corpora into verified shards: plan, process, commit.

    plan      cut the inputs into work units, always in the same way -> plan.json (driver)
    process   each unit: read records -> make examples -> write shards to a temporary folder -> read them back
              -> publish them -> _done/00003.json, the unit's result (workers)
    decide    only if options require it: which examples are duplicates or near-duplicates, exceed the maximum number of
              examples, or are held out (workers; `units.rounds`)
    commit    check that all units are done and all records are counted -> manifest.json (one worker)

A run that was killed at any moment can be started again: it repeats the units that were not finished, and ends with the
same bytes. Each kind of dataset is a module of `kinds`, which says what it reads and which examples it makes. All kinds
share the code of the Beam graph, of the plan and of the readers.

The augmentations of sentences (`augment`) are pure functions of arrays, without Beam. The trainer imports them to make
the same views, and imports nothing else of this package.
"""
