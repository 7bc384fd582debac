"""Raw corpora to verified shards, on Beam: plan, process, commit.

    plan      inputs -> deterministic work units, plan.json (driver)
    process   a unit: read -> the kind's examples -> spool -> re-read -> publish -> _done/unit.json (workers)
    (resolve  what one document means for another: duplicates, limits -> a second stage of units, see `curation`)
    commit    every unit done, every record accounted for -> manifest.json (one worker)

Killed anywhere and run again, a run redoes the units in flight and ends with the same bytes. What a kind of dataset
takes of records, and makes of them, is in a file of its own (`kinds`); the graph, the plan and the readers serve all.

Sentences' views (`augment`) are pure functions of arrays, apart from Beam: the trainer imports them to make the same
views while it trains, and nothing else of this package.
"""
