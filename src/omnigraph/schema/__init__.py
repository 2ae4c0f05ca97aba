"""The schema language `.pg`: admission, identity, comparison. Imports neither Lance nor Spark.

A text that `syntax.schema_parser` has parsed goes through these modules::

    admission   SchemaDocument → AdmittedSchema   every rule, interfaces expanded
    shape       AdmittedSchema → SchemaShape      the meaning, independent of spelling
    identity    SchemaShape → SchemaIR            stable ids, kept across renames
    compile     SchemaIR → Catalog                the types, for the other packages
    migration   two SchemaIRs → MigrationPlan     the steps from one to the other
    contract    source, SchemaIR ↔ three texts    the texts that a root persists

Entry points: `compile.compile_schema`, `compile.lint_schema`, `migration.plan_change` and
`contract.open_contract`. They are not re-exported here: most of the product only needs `catalog`,
and importing a package should not load what it does not use.
"""
