"""English words whose forms share no beginning: bought and buy, went and go, children and child. Pure.

The stemmer of the index removes endings, so it takes these for different words. A line of the table has the base and its
other forms. Left out are forms that are more often another word (left, lives, saw, born). Knows no sentence: `found` is
always of find.
"""

TABLE = """
    arise arose arisen; awake awoke awoken; bear bore; become became; begin began begun; bend bent; bind bound; bite bit
    bitten; bleed bled; blow blew blown; break broke broken; breed bred; bring brought; build built; burn burnt; buy bought;
    catch caught; choose chose chosen; cling clung; come came; creep crept; deal dealt; dig dug; draw drew drawn; dream
    dreamt; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed; feel felt; fight fought; find
    found; flee fled; fling flung; fly flew flown; forbid forbade forbidden; foresee foresaw foreseen; forget forgot
    forgotten; forgive forgave forgiven; freeze froze frozen; get got gotten; give gave given; go went gone; grind ground;
    grow grew grown; hang hung; hear heard; hide hid hidden; hold held; keep kept; kneel knelt; know knew known; lead led;
    lean leant; leap leapt; learn learnt; lend lent; light lit; lose lost; make made; mean meant; meet met; mislead misled;
    mistake mistook mistaken; misunderstand misunderstood; outgrow outgrew outgrown; overcome overcame; override overrode
    overridden; overtake overtook overtaken; overwrite overwrote overwritten; pay paid; prove proven; rebuild rebuilt;
    redo redid redone; rerun reran; resend resent; rethink rethought; rewrite rewrote rewritten; ride rode ridden; ring rang
    rung; rise risen; run ran; say said; see seen; seek sought; sell sold; send sent; shake shook shaken; shine shone; shoot
    shot; show shown; shrink shrank shrunk; sing sang sung; sink sank sunk; sit sat; sleep slept; slide slid; speak spoke
    spoken; spell spelt; spend spent; spin spun; spring sprang sprung; stand stood; steal stole stolen; stick stuck; sting
    stung; strike struck stricken; string strung; strive strove striven; swear swore sworn; sweep swept; swell swollen; swim
    swam swum; swing swung; take took taken; teach taught; tear tore torn; tell told; think thought; throw threw thrown;
    undergo underwent undergone; understand understood; undertake undertook undertaken; undo undid undone; unwind unwound;
    uphold upheld; wake woke woken; wear wore worn; weave wove woven; weep wept; win won; withdraw withdrew withdrawn;
    withhold withheld; withstand withstood; write wrote written;
    analysis analyses; appendix appendices; basis bases; bacterium bacteria; cactus cacti; calf calves; child children;
    crisis crises; criterion criteria; diagnosis diagnoses; elf elves; foot feet; fungus fungi; goose geese; half halves;
    hypothesis hypotheses; index indices; knife knives; loaf loaves; man men; matrix matrices; mouse mice; parenthesis
    parentheses; person people; phenomenon phenomena; scarf scarves; shelf shelves; synthesis syntheses; thesis theses;
    thief thieves; tooth teeth; vertex vertices; wife wives; wolf wolves; woman women;
    bad worse worst; good better best; far farther farthest
"""
_FORMS = {line.split()[0]: tuple(line.split()) for line in TABLE.split(";")}
_BASES = {form: base for base, forms in _FORMS.items() for form in forms}


def base_of(word: str) -> str:
    """`word`: in small letters; itself where the table does not have it."""
    return _BASES.get(word, word)


def forms_of(word: str) -> tuple[str, ...]:
    """The base of a word and the base's other forms; of another word itself alone."""
    return _FORMS.get(base_of(word), (word,))
