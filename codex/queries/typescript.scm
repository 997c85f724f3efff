(class_declaration name: (_) @name) @definition.class
(abstract_class_declaration name: (_) @name) @definition.class
(interface_declaration name: (_) @name) @definition.interface
(enum_declaration name: (_) @name) @definition.enum
(type_alias_declaration name: (_) @name) @definition.type
(internal_module name: (_) @name) @definition.module
(function_declaration name: (_) @name) @definition.function
(generator_function_declaration name: (_) @name) @definition.function
(method_definition name: (_) @name) @definition.method
(abstract_method_signature name: (_) @name) @definition.method
(program [(lexical_declaration (variable_declarator name: (identifier) @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) (variable_declaration (variable_declarator name: (identifier) @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]))] @definition.function)
(program [(lexical_declaration (variable_declarator name: (identifier) @name value: [(object) (array) (string) (template_string) (number) (true) (false) (null) (regex) (new_expression) (await_expression) (unary_expression) (binary_expression) (ternary_expression) (class) (call_expression function: [(member_expression) (call_expression)]) (as_expression) (satisfies_expression)])) (variable_declaration (variable_declarator name: (identifier) @name value: [(object) (array) (string) (template_string) (number) (true) (false) (null) (regex) (new_expression) (await_expression) (unary_expression) (binary_expression) (ternary_expression) (class) (call_expression function: [(member_expression) (call_expression)]) (as_expression) (satisfies_expression)]))] @definition.variable)
(program (lexical_declaration (variable_declarator name: (identifier) @name value: (call_expression function: (identifier) @_f (#not-eq? @_f "require")))) @definition.variable)
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) @definition.function)
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name)) @definition.variable)
(program (expression_statement (assignment_expression left: (member_expression property: (property_identifier) @name) right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) @definition.function)
(program (expression_statement (assignment_expression left: (member_expression property: (property_identifier) @name) right: (object))) @definition.variable)
(pair key: [(property_identifier) (string (string_fragment))] @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.function
(class_body (public_field_definition name: (_) @name value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.method)
(class_body (public_field_definition name: (_) @name) @definition.field)
(function_signature name: (_) @name) @definition.function
(method_signature name: (_) @name) @definition.method
(interface_body (property_signature name: (_) @name) @definition.field)
(module name: (string (string_fragment) @name)) @definition.module
(module name: [(identifier) (nested_identifier)] @name) @definition.module
(ambient_declaration [(lexical_declaration (variable_declarator name: (identifier) @name)) (variable_declaration (variable_declarator name: (identifier) @name))] @definition.variable)
(module body: (statement_block [(lexical_declaration (variable_declarator name: (identifier) @name)) (variable_declaration (variable_declarator name: (identifier) @name))] @definition.variable))
(internal_module body: (statement_block [(lexical_declaration (variable_declarator name: (identifier) @name)) (variable_declaration (variable_declarator name: (identifier) @name))] @definition.variable))
(call_expression function: (identifier) @reference.call)
(call_expression function: (member_expression property: (property_identifier) @reference.call))
(new_expression constructor: (identifier) @reference.call)
(type_annotation (type_identifier) @reference.type)
(extends_clause value: (identifier) @reference.base)
(implements_clause (type_identifier) @reference.base)
(import_statement source: (string) @import)
