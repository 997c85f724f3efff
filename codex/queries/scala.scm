(class_definition name: (identifier) @name) @definition.class
(object_definition name: (identifier) @name) @definition.object
(trait_definition name: (identifier) @name) @definition.interface
(enum_definition name: (identifier) @name) @definition.enum
(function_definition name: (identifier) @name) @definition.function
(function_declaration name: (identifier) @name) @definition.declaration
(type_definition name: (type_identifier) @name) @definition.type
(compilation_unit [(val_definition pattern: (identifier) @name) (var_definition pattern: (identifier) @name)] @definition.variable)
(template_body [(val_definition pattern: (identifier) @name) (var_definition pattern: (identifier) @name) (val_declaration name: (identifier) @name) (var_declaration name: (identifier) @name)] @definition.field)
(given_definition name: (identifier) @name) @definition.variable
(package_object name: (identifier) @name) @definition.object
(call_expression function: (identifier) @reference.call)
(call_expression function: (field_expression field: (identifier) @reference.call))
(extends_clause type: (type_identifier) @reference.base)
(import_declaration) @import
