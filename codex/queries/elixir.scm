(call target: (identifier) @_k (arguments . (alias) @name) (do_block) @body (#any-of? @_k "defmodule" "defprotocol" "defimpl")) @definition.module
(call target: (identifier) @_k (arguments . (call target: (identifier) @name)) (do_block)? @body (#any-of? @_k "def" "defp" "defmacro" "defmacrop" "defguard" "defguardp" "defdelegate")) @definition.clause
(call target: (identifier) @_k (arguments . (binary_operator left: (call target: (identifier) @name))) (do_block)? @body (#any-of? @_k "def" "defp" "defmacro" "defmacrop" "defguard" "defguardp")) @definition.clause
(call target: (identifier) @_k (arguments . (identifier) @name) (do_block)? @body (#any-of? @_k "def" "defp" "defmacro" "defmacrop")) @definition.clause
(call target: (identifier) @name (#any-of? @name "defstruct" "defexception")) @definition.struct
(unary_operator operand: (call target: (identifier) @_k (arguments (binary_operator left: (call target: (identifier) @name))) (#any-of? @_k "callback" "macrocallback"))) @definition.declaration
(unary_operator operand: (call target: (identifier) @_k (arguments (binary_operator left: [(identifier) (call)] @name)) (#any-of? @_k "type" "typep" "opaque"))) @definition.type
(call target: (identifier) @reference.call)
(call target: (dot right: (identifier) @reference.call))
(call target: (identifier) @_k (arguments . (alias) @import) (#any-of? @_k "alias" "import" "require" "use"))
