(class name: (_) @name) @definition.class
(module name: (_) @name) @definition.module
(method name: (_) @name) @definition.method
(singleton_method name: (_) @name) @definition.method
(program (assignment left: (constant) @name) @definition.variable)
(call method: (identifier) @reference.call)
(call receiver: (constant) @reference.type)
(superclass (constant) @reference.base)
(call method: (identifier) @_m arguments: (argument_list . (string) @import) (#match? @_m "^require"))
