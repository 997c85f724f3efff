(create_table (object_reference) @name (column_definitions)? @body) @definition.table
(create_table (column_definitions (column_definition name: (_) @name) @definition.field))
(create_view (object_reference) @name (create_query)? @body) @definition.view
(create_materialized_view (object_reference) @name (create_query)? @body) @definition.view
(create_function (keyword_function) . (object_reference) @name (function_body)? @body) @definition.function
(create_procedure (object_reference) @name) @definition.function
(create_type (object_reference) @name) @definition.type
(create_trigger (keyword_trigger) . (object_reference) @name) @definition.trigger
(create_sequence (object_reference) @name) @definition.sequence
(create_schema (identifier) @name) @definition.module
(create_index column: (identifier) @name) @definition.index
