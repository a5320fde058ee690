/* The stories themselves. Words that follow "a" begin with a consonant. */
#include "story_grammar.h"

const story_rule story_rules[] = {
    {"story", false, "{opening} {event} {ending}"},

    {"opening", false,
     "One {weather} {time} {hero} met a {pet}.|"
     "A {trait} {pet} met {hero} the {job}.|"
     "{hero} had a {trait} {pet}."},
    {"event", false,
     "The {pet} {did} a {look} {thing}.|"
     "A {trait} {foe} {did} a {look} {thing}.|"
     "They saw a {look} {thing} {where}.|"
     "\"My {thing} is {look},\" said the {foe}.|"
     "They had {food}, {food} and {food}."},
    {"ending", false,
     "So {hero.1} {did} the {thing}.|"
     "Then {hero.1} {moved} to the {place}.|"
     "At last they were {mood} and {mood}."},

    {"hero", true,
     "Mia/she|Lily/she|Anna/she|Rosa/she|Ella/she|Nora/she|Ruby/she|Zoe/she|"
     "Tom/he|Ben/he|Max/he|Leo/he|Sam/he|Finn/he|Hugo/he|Jack/he"},
    {"pet", true,
     "fox|owl|dog|cat|goat|bear|hare|mouse|pony|pig|duck|wolf|frog|crab|lamb|seal|"
     "mole|hen|cow|swan|toad|deer|bee|kid"},

    {"weather", false, "sunny|rainy|windy|snowy|foggy|cloudy|grey|dark"},
    {"time", false, "day|night|morning|evening|noon|week"},
    {"job", false,
     "baker|farmer|painter|sailor|singer|teacher|doctor|miner|cook|smith|monk|nurse|"
     "tailor|judge|clown|poet"},
    {"trait", false,
     "brave|wise|lazy|kind|loud|tiny|proud|shy|sleepy|rude|greedy|loyal|merry|fat|thin|"
     "tall|young|vain|bold|mean|silly|calm|nice|pale|fast|slow|big|bad|good|poor|rich|mad"},
    {"foe", false,
     "dragon|giant|witch|wizard|troll|pirate|thief|ghost|king|queen|robot|knight|ogre|elf|spy|"
     "fairy"},
    {"look", false,
     "red|blue|green|yellow|pink|golden|silver|white|black|brown|round|broken|magic|dirty|"
     "heavy|soft|sharp|lost|wet|new|rusty|pretty|long|cheap|hot|cold|short|flat|dry|thick|"
     "fine|rare"},
    {"thing", false,
     "key|lamp|map|ring|boat|drum|kite|book|hat|bell|crown|box|coin|flute|rope|ball|cup|knife|"
     "clock|sword|shoe|bag|stone|pen|chair|flag|wheel|spoon|brush|coat|mask|jar"},
    {"did", false,
     "hid|stole|found|broke|sold|made|lost|threw|fixed|ate|saw|bought|kicked|burned|"
     "cleaned|hated|kept|dropped|pulled|kissed|shook|carried|loved|buried|got|won|cut|"
     "drew|held|hit|took|sent"},
    {"moved", false,
     "ran|walked|flew|swam|jumped|crept|danced|rode|sailed|limped|went|marched|climbed|"
     "rolled|drove|fell"},
    {"place", false,
     "forest|river|market|castle|beach|hill|village|bridge|garden|mill|school|lake|cave|"
     "tower|desert|island|valley|field|city|barn|pond|farm|well|road|inn|shop|port|park|"
     "zoo|sea|wall|gate"},
    {"where", false, "{side} the {place}"},
    {"side", false, "near|past|behind|over|below|through|around|above"},
    {"food", false,
     "bread|cheese|honey|soup|cake|apples|tea|milk|nuts|carrots|rice|jam|beans|fish|plums|"
     "eggs|pie|ham|corn|peas|salt|figs|beer|ice"},
    {"mood", false,
     "happy|sad|angry|tired|scared|glad|sorry|lonely|free|ill|safe|bored|warm|quiet|full|"
     "hungry"},
    {0},
};
