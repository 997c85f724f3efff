(create_table (object_reference) @name) @definition.table
(create_view (object_reference) @name) @definition.view
(create_function (object_reference) @name) @definition.function
(create_index) @definition.index
