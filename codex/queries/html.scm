(element (start_tag (attribute (attribute_name) @_a (quoted_attribute_value (attribute_value) @name)) (#eq? @_a "id"))) @definition.element
(script_element) @definition.script
