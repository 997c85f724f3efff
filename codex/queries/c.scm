(function_definition declarator: (function_declarator declarator: (identifier) @name)) @definition.function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @definition.function
(declaration declarator: (function_declarator declarator: (identifier) @name)) @definition.declaration
(declaration declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @definition.declaration
(struct_specifier name: (type_identifier) @name body: (_)) @definition.struct
(union_specifier name: (type_identifier) @name body: (_)) @definition.struct
(enum_specifier name: (type_identifier) @name body: (_)) @definition.enum
(type_definition declarator: (type_identifier) @name) @definition.type
(preproc_function_def name: (identifier) @name) @definition.macro
(call_expression function: (identifier) @reference.call)
(parameter_declaration type: (type_identifier) @reference.type)
(declaration type: (type_identifier) @reference.type)
(preproc_include path: (_) @import)
