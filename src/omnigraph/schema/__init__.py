"""The schema language `.pg`: admit, identify, compare. Knows neither Lance nor Spark.

The path of a text that `syntax.schema_parser` has parsed, one module for each arrow::

    admission   SchemaDocument → AdmittedSchema   every rule, interfaces expanded
    shape       AdmittedSchema → SchemaShape      what it means, however it is written
    identity    SchemaShape → SchemaIR            stable ids, kept across renames
    compile     SchemaIR → Catalog                what the other rooms read
    migration   two SchemaIRs → MigrationPlan     the steps from one to the other
    contract    source, SchemaIR ↔ three texts    what a root persists

Entry points: `compile.compile_schema`, `compile.lint_schema`, `migration.plan_change` and
`contract.open_contract`. They are not re-exported here: most of the product only needs `catalog`,
and importing a package should not load what it does not use.
"""
