(class_declaration name: (name) @name) @definition.class
(interface_declaration name: (name) @name) @definition.interface
(trait_declaration name: (name) @name) @definition.class
(enum_declaration name: (name) @name) @definition.enum
(function_definition name: (name) @name) @definition.function
(method_declaration name: (name) @name) @definition.method
(namespace_definition name: (_) @name) @definition.module
(program (const_declaration (const_element . (name) @name)) @definition.variable)
(declaration_list (const_declaration (const_element . (name) @name)) @definition.field)
(enum_declaration_list (const_declaration (const_element . (name) @name)) @definition.field)
(property_declaration (property_element name: (variable_name) @name)) @definition.field
(function_call_expression function: (name) @reference.call)
(member_call_expression name: (name) @reference.call)
(scoped_call_expression name: (name) @reference.call)
(object_creation_expression (name) @reference.call)
(base_clause (name) @reference.base)
(class_interface_clause (name) @reference.base)
(namespace_use_clause (_) @import)
