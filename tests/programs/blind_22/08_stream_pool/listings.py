"""Flat listings as a crawler would see them, and their parser."""
import random
import re
import time

PRICE = re.compile(r"data-price=\"(\d+)\"")
AREA = re.compile(r"(\d+(?:\.\d+)?) m2")
ROOMS = re.compile(r"(\d) rooms?")

TEMPLATE = ('<li class="flat" data-id="{id}" {price}><h3>{rooms} rooms in {city}</h3>'
            "<span>{area} m2</span><p>{text}</p></li>")
CITIES = ["Ghent", "Lyon", "Porto", "Graz", "Turku", "Brno"]


def listing(number):
    rng = random.Random(number)
    price = f'data-price="{rng.randint(300, 2500)}"'
    if number in (690, 1085, 1400):
        price = 'data-price-on-request="1"'
    return TEMPLATE.format(id=number, price=price, rooms=rng.randint(1, 6), city=rng.choice(CITIES),
                           area=rng.randint(18, 160), text="lorem ipsum " * rng.randint(20, 80))


def fetch(number):
    """One page per request; the site answers in about 50 ms."""
    time.sleep(0.05)
    return listing(number)


def parse(number):
    html = fetch(number)
    price = int(PRICE.search(html).group(1))
    area = float(AREA.search(html).group(1))
    rooms = int(ROOMS.search(html).group(1))
    return {"id": number, "price": price, "area": area, "rooms": rooms, "per_m2": price / area}
