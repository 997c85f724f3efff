(class name: (_) @name) @definition.class
(module name: (_) @name) @definition.module
(method name: (_) @name) @definition.method
(singleton_method name: (_) @name) @definition.method
([(program (assignment left: (constant) @name) @definition.variable) (body_statement (assignment left: (constant) @name) @definition.variable)])
(body_statement (call method: (identifier) @_attr arguments: (argument_list (simple_symbol) @name) (#match? @_attr "^attr_")) @definition.field)
(call method: (identifier) @reference.call)
(call receiver: (constant) @reference.type)
(superclass (constant) @reference.base)
(call method: (identifier) @_m arguments: (argument_list . (string) @import) (#match? @_m "^require"))
