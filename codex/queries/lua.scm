(function_declaration name: (_) @name) @definition.function
(chunk (variable_declaration (assignment_statement (variable_list name: (_) @name) (expression_list value: (function_definition body: (_)? @body)))) @definition.function)
(chunk (assignment_statement (variable_list name: (_) @name) (expression_list value: (function_definition body: (_)? @body))) @definition.function)
(chunk (variable_declaration (assignment_statement (variable_list name: (_) @name) (expression_list value: (table_constructor)))) @definition.variable)
(chunk (assignment_statement (variable_list name: (_) @name) (expression_list value: (table_constructor))) @definition.variable)
(field name: [(identifier) (string (string_content))] @name value: (function_definition body: (_)? @body)) @definition.function
(function_call name: (identifier) @reference.call)
(function_call name: (dot_index_expression field: (identifier) @reference.call))
(function_call name: (method_index_expression method: (identifier) @reference.call))
