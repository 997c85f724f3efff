(class_declaration name: (_) @name) @definition.class
(function_declaration name: (_) @name) @definition.function
(generator_function_declaration name: (_) @name) @definition.function
(method_definition name: (_) @name) @definition.method
(program [(lexical_declaration (variable_declarator name: (identifier) @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) (variable_declaration (variable_declarator name: (identifier) @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]))] @definition.function)
(program [(lexical_declaration (variable_declarator name: (identifier) @name value: [(object) (array) (string) (template_string) (number) (true) (false) (null) (regex) (new_expression) (await_expression) (unary_expression) (binary_expression) (ternary_expression) (class) (call_expression function: [(member_expression) (call_expression)])])) (variable_declaration (variable_declarator name: (identifier) @name value: [(object) (array) (string) (template_string) (number) (true) (false) (null) (regex) (new_expression) (await_expression) (unary_expression) (binary_expression) (ternary_expression) (class) (call_expression function: [(member_expression) (call_expression)])]))] @definition.variable)
(program (lexical_declaration (variable_declarator name: (identifier) @name value: (call_expression function: (identifier) @_f (#not-eq? @_f "require")))) @definition.variable)
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) @definition.function)
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name)) @definition.variable)
(program (expression_statement (assignment_expression left: (member_expression property: (property_identifier) @name) right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) @definition.function)
(program (expression_statement (assignment_expression left: (member_expression property: (property_identifier) @name) right: (object))) @definition.variable)
(pair key: [(property_identifier) (string (string_fragment))] @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.function
(class_body (field_definition property: (_) @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.method)
(class_body (field_definition property: (_) @name) @definition.field)
(call_expression function: (identifier) @reference.call)
(call_expression function: (member_expression property: (property_identifier) @reference.call))
(new_expression constructor: (identifier) @reference.call)
(class_heritage (identifier) @reference.base)
(import_statement source: (string) @import)
