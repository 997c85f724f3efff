(data_type name: (_) @name) @definition.type
(newtype name: (_) @name) @definition.type
(type_synonym name: (_) @name) @definition.type
(class name: (_) @name) @definition.interface
(instance name: (_) @name) @definition.impl
(declarations (signature name: (variable) @name) @definition.function)
(class_declarations (signature name: (variable) @name) @definition.declaration)
(declarations (function name: (variable) @name match: (_) @body) @definition.clause)
(declarations (bind name: (variable) @name match: (_) @body) @definition.clause)
(apply function: (variable) @reference.call)
(infix operator: (operator) @reference.call)
(signature type: (_ (name) @reference.type))
(import module: (module) @import)
