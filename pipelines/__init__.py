"""Raw corpora to verified shards, on Beam: plan, process, commit.

    plan      inputs -> deterministic work units, plan.json (driver)
    process   a unit: read -> the kind's examples -> spool -> re-read -> publish -> _done/unit.json (workers)
    (decide   duplicates, near-duplicates, limits, held-out texts -> rounds over all units, see `units.rounds`)
    commit    every unit done, every record accounted for -> manifest.json (one worker)

Killed anywhere and run again, a run redoes the units in flight and ends with the same bytes. Each kind of
dataset has a file of its own (`kinds`), which says what it reads and the examples it makes; the graph, the plan and the
readers serve all kinds.

The augmentations of sentences (`augment`) are pure functions of arrays, without Beam. The trainer imports them to make
the same views, and imports nothing else of this package.
"""
