"""The small words of seven languages: what opens a noun phrase, what announces a verb, what is no interest.

Function words are few and do not grow, so they are written down; nouns, adjectives and verbs are not. An
elided word stands without its apostrophe: "l", "dell".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Grammar:
    """How a language marks its noun phrases.

    `determiners` open one, and so do the `contracted`, in which a preposition has swallowed its article.
    `neutral` words (prepositions, conjunctions, "there is") part two. After a `verbal` word (pronouns, forms
    of "to be", "who") a bare word is a verb or a predicate. `joints` hold a compound together ("verre
    d'eau"). `light` nouns are no interests: words for photographs and their parts, kinds, numbers, colours
    as such. A word after a noun is a verb if it has one of the endings `verbs`, and a participle that
    belongs to what follows if it has one of `participles`. With `head_last` a noun stands after its
    adjectives; with `capitals` it is written with one.
    """

    determiners: frozenset[str]
    neutral: frozenset[str]
    verbal: frozenset[str]
    joints: frozenset[str]
    light: frozenset[str]
    contracted: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ()
    participles: tuple[str, ...] = ()
    head_last: bool = False
    capitals: bool = False

    @cached_property
    def function_words(self) -> frozenset[str]:
        """What the language is recognised by."""
        return self.determiners | self.contracted | self.neutral | self.verbal | self.joints


def _words(text: str) -> frozenset[str]:
    return frozenset(text.casefold().split())


CLITICS = _words("""
        ce elle elles il ils je la le les leur lhe lhes lo los lui me moi nos nous on se t te toi tu vous
    """)
"""Pronouns that French and Portuguese hang on a verb: "montre-moi", "y a-t-il", "mostre-me"."""

ENGLISH = Grammar(
    determiners=_words("""
        a an the this these those my your his her its our their whose some any no every each all both
        either neither few many much several more most enough another other two three four five six seven
        eight nine ten
    """),
    neutral=_words("""
        about above across after against along alongside amid among around as at before behind below beneath
        beside besides between beyond by down during except for from in inside into like near off on onto
        out outside over past per through throughout to toward towards under underneath until up upon via
        with within without next close rest way other and but or nor if because while though than then
        whether not only just also too very here there now again still already ever never always maybe
        perhaps need needs yesterday today tomorrow please pls plz thanks thank hello hi hey sorry ok okay
        yes s t re ve ll m d
    """),
    verbal=_words("""
        i you he she it we they me him us them that who whom what which where when why how myself yourself
        himself herself itself themselves anyone anybody anything someone somebody something somewhere
        anywhere everyone everybody everything nobody nothing am is are was were be been being do does did
        done doing have has had having can could may might must shall should will would don doesn didn isn
        aren wasn weren haven hasn hadn won wouldn couldn shouldn let
    """),
    joints=_words("of"),
    light=_words("""
        picture pictures photo photos photograph photographs photography image images pic pics shot shots
        snapshot snapshots scene scenes view foreground background middle center centre corner left right
        top bottom front back side sides edge part parts place places position direction kind kinds sort
        sorts type types number numbers amount count color colors colour colours shape size brand name names
        age time thing things one ones lot lots bit couple pair group example breed
        species model height width length weight distance speed price
    """),
    head_last=True,
)

GERMAN = Grammar(
    determiners=_words("""
        der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner keines
        dieser diese dieses diesen diesem jener jene jenes jenen jenem jeder jede jedes jeden jedem mein
        meine meinen meinem meiner meines dein deine deinen deinem deiner sein seine seinen seinem seiner
        ihr ihre ihren ihrem ihrer unser unsere unseren unserem unserer euer eure welcher welche welches
        welchen welchem alle allen aller beide beiden einige einigen mehrere mehreren viele vielen wenige
        wenigen manche manchen andere anderen anderer zwei drei vier fünf sechs sieben acht neun zehn
    """),
    neutral=_words("""
        an auf aus bei bis durch für gegen gegenüber hinter in mit nach nahe neben ohne seit über um unter
        von vor während wegen zu zwischen und oder aber sondern als ob wenn weil dass nicht nur auch noch
        schon sehr mehr hier da dort dabei darauf darin daneben jetzt mal bitte danke hallo irgendwo
        irgendwelche viel viele wenig gibt gib zeig zeige zeigt such suche finde etwa denn eigentlich gerade
        links rechts oben unten vorne hinten mitte hat haben habe sehen sieht trägt
    """),
    verbal=_words("""
        ich du er sie es wir ihr mich dich ihn uns euch mir dir ihm ihnen sich man wer wen wem was wo wohin
        woher wann warum wie wieso jemand niemand etwas nichts ist sind war waren bin bist seid wird werden
        wurde wurden kann kannst können könnte könntest muss müssen soll sollen darf will wollen
    """),
    joints=frozenset(),
    contracted=_words("am im vom zum zur beim ins ans aufs"),
    light=_words("""
        bild bilder bildern foto fotos photo photos aufnahme aufnahmen szene hintergrund vordergrund
        bildhintergrund bildvordergrund mitte rand seite ecke art arten sorte anzahl zahl farbe farben form
        größe marke name namen alter uhrzeit ding dinge teil teile
    """),
    head_last=True,
    capitals=True,
)

FRENCH = Grammar(
    determiners=_words("""
        le la les l un une ce cet cette ces mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs
        quel quelle quels quelles quelque quelques plusieurs chaque tout toute tous toutes aucun aucune
        autre autres deux trois quatre cinq six sept huit neuf dix
    """),
    neutral=_words("""
        à en dans sur sous avec sans pour par près vers chez entre devant derrière contre depuis pendant
        avant après parmi selon côté jusque et ou mais donc si comme quand ne n pas plus moins très aussi
        encore déjà non oui combien beaucoup peu trop ici là maintenant y a ont avoir voici voilà montre
        montrez montrer affiche cherche trouve merci bonjour svp plaît aujourd hui gauche droite
    """),
    verbal=_words("""
        je j tu il elle on nous vous ils elles me m te t se s moi toi lui eux qui que qu quoi où comment
        pourquoi c ça cela est sont était étaient être suis es sommes êtes été peut peux peuvent pouvez
        pourrait dont lequel laquelle
    """),
    joints=_words("de d"),
    contracted=_words("du des au aux"),
    light=_words("""
        photo photos image images photographie photographies cliché clichés tableau scène arrière-plan
        premier-plan plan fond milieu centre coin bord gauche droite haut bas côté partie parties sorte
        sortes type genre espèce nombre couleur couleurs forme taille marque nom âge heure chose choses
    """),
    verbs=("ent",),
    participles=("é", "ée", "és", "ées"),
)

SPANISH = Grammar(
    determiners=_words("""
        el la los las lo un una unos unas este esta estos estas ese esa esos esas aquel aquella aquellos
        aquellas mi mis tu tus su sus nuestro nuestra nuestros nuestras algún alguna algunos algunas ningún
        ninguna cuál cuáles cada todo toda todos todas otro otra otros otras varios varias cuánto cuánta
        cuántos cuántas cuanto cuanta cuantos cuantas muchos muchas pocos pocas dos tres cuatro cinco seis
        siete ocho nueve diez
    """),
    neutral=_words("""
        a ante bajo con contra desde en entre hacia hasta para por según sin sobre tras cerca lejos junto
        delante detrás encima debajo dentro fuera y e o u ni pero sino si como más menos muy también no sí
        qué ya aquí ahí allí ahora hay había tiene tienen tengo muestra muéstrame muéstranos enséñame busca
        búscame encuentra gracias hola favor alrededor enfrente derecha izquierda
    """),
    verbal=_words("""
        yo tú él ella usted nosotros ellos ellas me te se le les nos que quién quiénes dónde donde cuándo
        cómo alguien nadie algo nada es son era eran ser está están estaba estaban estar estoy eres fue
        puedes puede pueden puedo podrías esto eso
    """),
    joints=_words("de"),
    contracted=_words("al del"),
    light=_words("""
        foto fotos imagen imágenes fotografía fotografías escena fondo plano medio centro esquina borde lado
        parte partes tipo tipos clase número cantidad color colores forma tamaño marca nombre edad hora cosa
        cosas
    """),
    verbs=("ando", "iendo", "yendo", "an", "en", "aba", "aban"),
    participles=("ado", "ada", "ados", "adas", "ido", "ida", "idos", "idas"),
)

ITALIAN = Grammar(
    determiners=_words("""
        il lo la i gli le l un uno una questo questa questi queste quest quello quella quelli quelle quel
        quei quegli quell mio mia miei mie tuo tua suo sua suoi sue nostro nostra loro qualche quale quali
        qual alcuni alcune ogni tutti tutte altro altra altri altre quanto quanta quanti quante molti molte
        pochi poche nessun nessuna due tre quattro cinque sei sette otto nove dieci
    """),
    neutral=_words("""
        a ad da in con su per tra fra sotto sopra dentro fuori vicino accanto davanti dietro senza verso
        contro durante prima dopo presso e ed o od ma se come anche più meno molto non no sì già ancora qui
        qua lì là ora c ci ha hanno ho avere mostra mostrami mostraci fammi cerca trova trovami vedere
        grazie ciao favore destra sinistra
    """),
    verbal=_words("""
        io tu lui lei noi voi mi ti si vi ne che chi cosa dove dov quando perché com cos qualcuno nessuno
        qualcosa niente è sono era erano essere sta stanno stava stavano sei siamo può possono puoi potresti
    """),
    joints=_words("di d"),
    contracted=_words("""
        al allo alla ai agli alle all dal dallo dalla dai dagli dalle dall del dello della dei degli delle
        dell nel nello nella nei negli nelle nell sul sullo sulla sui sugli sulle sull
    """),
    light=_words("""
        foto fotografia fotografie immagine immagini scena sfondo piano mezzo centro angolo bordo lato parte
        parti tipo tipi genere specie numero quantità colore colori forma dimensione marca nome età ora cose
    """),
    verbs=("ando", "endo", "ava", "avano", "ano", "ono"),
    participles=("ato", "ata", "ati", "ate", "uto", "uta", "uti", "ute", "ito", "ita", "iti", "ite"),
)

PORTUGUESE = Grammar(
    determiners=_words("""
        o a os as um uma uns umas este esta estes estas esse essa esses essas aquele aquela aqueles aquelas
        meu minha meus minhas teu tua seu sua seus suas nosso nossa algum alguma alguns algumas nenhum
        nenhuma qual quais cada todo toda todos todas outro outra outros outras vários várias quanto quanta
        quantos quantas muitos muitas poucos poucas dois duas três quatro cinco seis sete oito nove dez
    """),
    neutral=_words("""
        em com por para pra sem sob sobre entre até desde contra perto longe atrás diante debaixo dentro
        fora e ou nem mas se como mais menos muito também não sim já aqui aí ali lá agora há tem têm tenho
        havia existe existem mostre mostra mostrar procure encontre ache obrigado obrigada olá favor direita
        esquerda
    """),
    verbal=_words("""
        eu tu ele ela você nós eles elas vocês me te se lhe que quê quem onde quando porquê porque alguém
        ninguém algo nada é são era eram ser está estão estava estavam estar estou foi pode podem posso
        poderia isto isso
    """),
    joints=_words("de"),
    contracted=_words("""
        ao aos à às do da dos das no na nos nas num numa pelo pela pelos pelas neste nesta nesse nessa deste
        desta
    """),
    light=_words("""
        foto fotos imagem imagens fotografia fotografias cena fundo plano meio centro canto borda lado parte
        partes tipo tipos espécie número quantidade cor cores forma tamanho marca nome idade hora coisa
        coisas
    """),
    verbs=("ando", "endo", "indo", "am", "em", "ava", "avam"),
    participles=("ado", "ada", "ados", "adas", "ido", "ida", "idos", "idas"),
)

DUTCH = Grammar(
    determiners=_words("""
        de het een deze dit dat die mijn jouw je zijn haar ons onze jullie hun geen elke elk ieder iedere
        alle welke welk enkele sommige veel weinig andere beide twee drie vier vijf zes zeven acht negen
        tien hoeveel
    """),
    neutral=_words("""
        aan achter bij binnen boven buiten door in langs met na naar naast om onder op over per rond sinds
        tegen te ten ter tijdens tot tussen uit van vanaf via voor zonder en of maar als niet ook nog al
        meer minder heel erg hier daar er nu even graag alsjeblieft alstublieft bedankt dank hallo heeft
        hebben heb toon laat zien zoek vind geef links rechts dichtbij buurt
    """),
    verbal=_words("""
        ik jij hij zij ze wij we u mij me jou hem hen zich wie wat waar wanneer waarom hoe iemand niemand
        iets niets is was waren ben bent wordt worden kan kun kunt kunnen mag moet moeten zal zou wil staat
        staan ligt liggen zit zitten
    """),
    joints=frozenset(),
    light=_words("""
        foto fotos afbeelding afbeeldingen beeld beelden plaatje plaatjes achtergrond voorgrond midden hoek
        rand kant zijde deel soort soorten type aantal kleur kleuren vorm grootte merk naam leeftijd ding
        dingen
    """),
    verbs=("eerd",),
    head_last=True,
)

GRAMMARS = {
    "en": ENGLISH,
    "de": GERMAN,
    "fr": FRENCH,
    "es": SPANISH,
    "it": ITALIAN,
    "pt": PORTUGUESE,
    "nl": DUTCH,
}
