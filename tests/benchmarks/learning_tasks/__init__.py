"""The tasks of `tests.benchmarks.learning`, a module for each policy, named as the policy is registered.

A module has `main_config` and `create_config`, a pair for the pipeline, and `budget`, the env steps within which the
stop value is to be reached. It may have `pipeline`, the name of the entry (`serial_pipeline` by default), or
`train(main_config, create_config, seed)`, for what takes more than one call.
"""
