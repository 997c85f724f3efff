(function_declaration name: (_) @name) @definition.function
(chunk (variable_declaration (assignment_statement (variable_list name: (_) @name) (expression_list value: (function_definition)))) @definition.function)
(function_call name: (identifier) @reference.call)
(function_call name: (dot_index_expression field: (identifier) @reference.call))
(function_call name: (method_index_expression method: (identifier) @reference.call))
