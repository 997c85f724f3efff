(class_definition name: (identifier) @name) @definition.class
(function_definition name: (identifier) @name) @definition.function
(module (expression_statement (assignment left: (identifier) @name)) @definition.variable)
(class_definition body: (block (expression_statement (assignment left: (identifier) @name)) @definition.field))
(type_alias_statement left: (type [(identifier) @name (generic_type (identifier) @name)])) @definition.type
(call function: (identifier) @reference.call)
(call function: (attribute attribute: (identifier) @reference.call))
(class_definition superclasses: (argument_list (identifier) @reference.base))
(class_definition superclasses: (argument_list (attribute attribute: (identifier) @reference.base)))
(decorator (identifier) @reference.call)
(type (identifier) @reference.type)
(import_from_statement module_name: (_) @import)
(import_from_statement name: (dotted_name) @reference.import)
(import_statement name: (dotted_name) @import)
