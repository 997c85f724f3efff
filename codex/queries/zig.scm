(function_declaration name: (identifier) @name) @definition.function
(variable_declaration . (identifier) @name [(struct_declaration) (opaque_declaration)]) @definition.struct
(variable_declaration . (identifier) @name (union_declaration)) @definition.struct
(variable_declaration . (identifier) @name (enum_declaration)) @definition.enum
(variable_declaration . (identifier) @name (error_set_declaration)) @definition.enum
(source_file (variable_declaration . (identifier) @name [(integer) (float) (string) (boolean) (identifier) (field_expression) (call_expression)]) @definition.variable)
(struct_declaration (container_field name: (identifier) @name) @definition.field)
(test_declaration (string) @name (block) @body) @definition.function
(call_expression function: (identifier) @reference.call)
(call_expression function: (field_expression member: (identifier) @reference.call))
(builtin_function (builtin_identifier) @_b (arguments (string (string_content) @import)) (#eq? @_b "@import"))
