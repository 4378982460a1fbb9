"""Make 200 small pages in 20 encodings, each declared in ten ways, with the text that a browser would show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

# Label on the wire, Python codec, a label that few write, the texts of the two halves.
LANGUAGES = (
    ("utf-8", "utf-8", "unicode-1-1-utf-8", "Zürich liegt am schönen See, schräg gegenüber dem Café für müde Gäste.",
     "Sur la plage d’Étretat, la mer était calme et le ciel légèrement voilé – 5 € l’entrée."),
    ("utf-16le", "utf-16-le", "unicode", "Das Mühlrad dreht sich über dem Bach, schöne Grüße aus Österreich.",
     "La niña mira el cañón desde la montaña: ¡qué día más bonito!"),
    ("windows-1250", "cp1250", "x-cp1250", "Na náměstí stojí stará radnice, žlutá tramvaj přijíždí. Řeka je klidná.",
     "Pies śpi pod drzewem, a źrebię pije wodę z rzeki. Łódź płynie wzdłuż brzegu."),
    ("windows-1251", "cp1251", "x-cp1251", "Красная площадь находится в центре Москвы, рядом с древним Кремлём.",
     "Рыжая кошка спит на подоконнике, а за окном идёт первый снег."),
    ("windows-1252", "cp1252", "l1", "“Le garçon a mangé une crêpe à l’école”, dit sa mère très étonnée.",
     "O coração da cidade é a praça onde as crianças jogam à bola até à noite."),
    ("windows-1253", "cp1253", "x-cp1253", "Η παλιά πόλη βρίσκεται πάνω από τη θάλασσα και έχει άσπρα σπίτια.",
     "Το καράβι φεύγει το πρωί από το λιμάνι με πολλούς επιβάτες."),
    ("windows-1254", "cp1254", "latin5", "İstanbul'un eski çarşısında güneş ışığı kubbelerin üzerine düşüyor.",
     "Küçük kız ağacın altında oturmuş, kırmızı şapkasıyla gökyüzüne bakıyor."),
    ("windows-1255", "cp1255", "x-cp1255", "העיר העתיקה נמצאת על ההר, ובתוכה שוק צבעוני עם הרבה אנשים.",
     "הילדה הקטנה יושבת על הספסל בגן ומחכה לאמא שלה עם כדור אדום."),
    ("windows-1256", "cp1256", "x-cp1256", "تقع المدينة القديمة على ضفة النهر وفيها سوق كبير للتوابل.",
     "يجلس الصياد في قاربه الصغير عند غروب الشمس وينتظر السمك."),
    ("windows-1257", "cp1257", "x-cp1257", "Senamiestis yra prie upės, čia stovi aukštas bokštas su žaliu stogu.",
     "Mežā aug lielas egles, un bērni lasa sēnes. Ūdens upē ir tīrs un auksts, pļavā zied ķimenes."),
    ("windows-874", "cp874", "tis-620", "วัดเก่าแก่ตั้งอยู่ริมแม่น้ำ มีเจดีย์สีทองสูงและต้นไม้ใหญ่",
     "เด็กผู้หญิงนั่งกินข้าวกับแม่ที่ตลาดน้ำในตอนเช้า"),
    ("iso-8859-2", "iso8859-2", "csisolatin2", "A régi város főterén áll a híres kőszínház, előtte zöld fák, szökőkút.",
     "Stara šola stoji ob reki, kjer čolni čakajo na žejne popotnike. Ježek išče šipek."),
    ("koi8-r", "koi8-r", "cskoi8r", "На берегу реки стоит старая мельница, рядом пасётся белая лошадь.",
     "Дети играют во дворе, а бабушка смотрит на них из окна второго этажа."),
    ("iso-2022-jp", "iso2022-jp", "csiso2022jp", "川のほとりに古い水車小屋があり、白い馬が草を食べています。",
     "雪の降る朝、赤い帽子の少女が駅で電車を待っていた。"),
    ("ibm866", "cp866", "csibm866", "Старый маяк стоит на высокой скале, внизу шумит холодное море.",
     "Утром туман лежит над полем, и вдали видна колокольня."),
    ("shift_jis", "cp932", "windows-31j", "東京タワーは赤い鉄塔で、とても高い建物です。①夜景が有名㈱。",
     "港に並んだ漁船の上をカモメが飛び、漁師は網を直している。"),
    ("euc-jp", "euc-jp", "x-euc-jp", "京都の古いお寺の庭には、静かな池と石の橋があります。",
     "祭りの夜、子どもたちは提灯を持って山道を歩いていく。"),
    ("gbk", "gb18030", "x-gbk", "老城位于河边，城墙上有一座高高的塔，塔旁边种着许多柳树。",
     "清晨的市场里，卖菜的老奶奶微笑着把青菜递给顾客。"),
    ("big5", "big5hkscs", "x-x-big5", "老街旁邊有一座紅色的廟，廟前的廣場上有許多賣小吃的攤販。",
     "下雨的傍晚，學生撐著雨傘站在公車站牌下等車回家。"),
    ("euc-kr", "cp949", "windows-949", "오래된 성문 옆에는 작은 시장이 있고 사람들이 떡볶이를 먹고 있다.",
     "눈 덮인 산 아래 마을에서 아이들이 썰매를 타며 웃고 있다."),
)  # fmt: skip
DECOY = "<meta charset=iso-8859-5>"


class WirePage(NamedTuple):
    """One page as sent: its bytes, its Content-Type header ('' for a file), and the text of its one paragraph."""

    name: str
    data: bytes
    content_type: str
    text: str


def pages() -> Iterator[WirePage]:
    """Yield the 200 pages."""
    for label, codec, rare, even, odd in LANGUAGES:
        for text, situations in ((even, _even(label, rare)), (odd, _odd(label, rare))):
            for name, head, content_type in situations:
                body = f"<html><head>{head}<title>x</title></head><body><p>{text}</p></body></html>"
                yield WirePage(f"{label}, {name}", _encoded(body, codec, name), content_type, text)


def _even(label: str, rare: str) -> Iterator[tuple[str, str, str]]:
    """Yield (situation, head, Content-Type) of the half that was read while the decoder was written."""
    is_16 = label == "utf-16le"
    meta = f"<meta charset={label}>"
    header = f"text/html; charset={label}" if is_16 else ""  # a declaration in ASCII cannot say UTF-16
    yield "header", "", f"text/html; charset={label}"
    yield "header against meta", DECOY, f"text/html;charset={rare}"
    yield "late", f"<script>{'x = 1;' * 1500}</script>{meta}", header
    yield "undeclared", "", ""
    decoys = f"<!-- > {DECOY} --><script>a = '{DECOY}'</script><link title='{DECOY}'>"
    yield "decoys", f'{decoys}<meta charset="{rare}">', header


def _odd(label: str, rare: str) -> Iterator[tuple[str, str, str]]:
    """Yield (situation, head, Content-Type) of the half that was first read afterwards."""
    is_16 = label == "utf-16le"
    header = f"text/html; charset={label}" if is_16 else "text/html"
    yield "quoted header", DECOY, f'Text/HTML; version=1 ; Charset="{label.upper()}"; q="charset=koi8-u"'
    pragma = f"<META content='text/html; charset = {rare}' name=x HTTP-EQUIV=Content-Type>"
    yield "pragma", f"<title>{DECOY}</title><style>{DECOY}</style>{pragma}", header
    unknown = f"<meta charset=rot13><meta name=charset content={label}><meta http-equiv=refresh content='charset=big5'>"
    yield "unknown label before", f"{unknown}<meta charset=' {label} ' />", header.replace("utf-16le", "unicode")
    yield "one bad byte", "", "text/html; charset=no-such-label"
    yield "mark" if label.startswith("utf") else "long undeclared", "", "text/html; charset=big5" if is_16 else ""


def _encoded(body: str, codec: str, name: str) -> bytes:
    """Encode a page; add what its situation asks for."""
    if name == "long undeclared":
        body = body.replace("</p>", "</p>" + "<div class=menu>one two three</div>" * 200)
    data = body.encode(codec)
    if name == "one bad byte":
        at = data.rindex("</p>".encode(codec))
        bad = {"utf-16-le": b"\0\xdc", "iso2022-jp": b"\x80"}.get(codec, b"\xff")
        data = data[:at] + bad + data[at:]
    return ("\ufeff".encode(codec) if name == "mark" else b"") + data
