(rule_set (selectors) @name) @definition.rule
(media_statement) @definition.rule
(keyframes_statement (keyframes_name) @name) @definition.rule
